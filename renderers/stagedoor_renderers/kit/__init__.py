"""Everything of ReportLab, in a form that eight threads can use at once.

`sfnt` and `anchors` read fonts, `cutting` and `pages` cut them, `faces` has a glyph
for every character and `pointing` those of letters with points. `text` and `scripts`
make what a buyer typed drawable, `typeset` measures and breaks it, `direction` puts
a line into its order, `showing` writes it down, `desk` remembers it by means of `memory`. `qr` makes codes,
`sheet` is the document; `settings` makes ReportLab safe, and is imported by `sheet`
before anything of ReportLab.
"""
