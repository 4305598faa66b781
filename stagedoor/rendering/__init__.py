"""Finding renderers, and running them in a bounded number of threads.

`stagedoor.rendering` knows no PDF library: what draws is a plugin. Start with
`api` (what a renderer implements), then `registry` (how it is found and
checked), `key` (the name of a document before it is drawn) and `pool` (how it
is run).
"""
