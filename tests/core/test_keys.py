"""Key names: one namespace, no key outside it, and what a namespace may be."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stagedoor.core.keys import POOL, ROWS_PER_BITMAP, Keys, is_worker_name
from stagedoor.errors import ConfigurationError


def every_key(keys: Keys) -> list[str]:
    return [
        keys.stream,
        keys.critical,
        keys.dead,
        keys.delayed,
        keys.delayed_body,
        keys.crashes,
        keys.calls,
        keys.calls_states,
        keys.call_status("c"),
        keys.call_meta("c"),
        keys.call_lease("c"),
        keys.worker("w"),
        keys.published("b"),
        keys.published_rows("b", 1),
    ]


def test_the_names_of_the_contract() -> None:
    assert every_key(Keys()) == [
        "jobs",
        "jobs:critical",
        "jobs:dead",
        "jobs:delayed",
        "jobs:delayed:body",
        "jobs:crashes",
        "jobs:calls",
        "jobs:calls:states",
        "jobs:call:c_status",
        "jobs:call:c_meta",
        "jobs:call:c_lease",
        "jobs:worker:w",
        "jobs:published:b",
        "jobs:published:b:0",
    ]


@pytest.mark.parametrize("namespace", ["j", "jobs", "{jobs}", "a.b_c-9", "x" * 32, "{" + "x" * 32 + "}"])
def test_namespaces_that_are_allowed(namespace: str) -> None:
    keys = every_key(Keys(namespace))
    assert len(set(keys)) == len(keys)
    assert all(key == namespace or key.startswith(f"{namespace}:") for key in keys)


@pytest.mark.parametrize(
    "namespace",
    ["", "a b", "a:b", "{}", "{a", "a}", "{a}b", "{{a}}", "x" * 33, "jobs\n", "ü", "*", "jobs?", "\x00", "{a}{b}"],
)
def test_namespaces_that_are_refused(namespace: str) -> None:
    with pytest.raises(ConfigurationError, match="namespace"):
        Keys(namespace)


def test_only_braces_put_all_keys_into_one_slot() -> None:
    assert Keys("{jobs}").is_single_slot
    assert not Keys("jobs").is_single_slot


@pytest.mark.parametrize("name", ["w", "worker-01.2", "a_b", "x" * 64])
def test_worker_names_that_are_allowed(name: str) -> None:
    assert is_worker_name(name)


@pytest.mark.parametrize("name", ["", "a b", "a:b", "w\n", "x" * 65, "ü", POOL, "~", "a/b", "\x00"])
def test_worker_names_that_are_refused(name: str) -> None:
    assert not is_worker_name(name)


@given(st.integers(min_value=0, max_value=2**63 - 1))
def test_rows_share_a_bitmap_by_runs_of_8192(outbox_id: int) -> None:
    keys = Keys()
    start = outbox_id - outbox_id % ROWS_PER_BITMAP
    name = keys.published_rows("b", outbox_id)
    assert name == keys.published_rows("b", start) == keys.published_rows("b", start + ROWS_PER_BITMAP - 1)
    assert name != keys.published_rows("b", start + ROWS_PER_BITMAP)
