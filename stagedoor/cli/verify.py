"""``verify``: whether a signed token is genuine, with nothing but a public key."""

import click


@click.command("verify")
@click.argument("token", metavar="TOKEN")
@click.option(
    "--key",
    "keys",
    metavar="ID=FILE",
    multiple=True,
    required=True,
    help="A public key (Ed25519, PEM) and its number, as in 7=door.pem; without a number it is 1. May be repeated.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object and nothing else.")
def command(token: str, *, keys: tuple[str, ...], as_json: bool) -> int:
    """Check a signed token without any connection: what a door does that is offline.

    The exit code is 0 when one of the keys has signed it, and 1 when not. Whether its ticket
    has been refunded since only the order book knows: order check TOKEN.
    """
    from stagedoor.cli import verify_view  # noqa: PLC0415 - cryptography takes its time, and --help needs none

    return verify_view.verify(token, keys, as_json=as_json)
