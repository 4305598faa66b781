"""Everything of ReportLab, in a form that eight threads can use at once.

`sfnt`, `cutting` and `faces` read fonts and cut them into glyph pages; `text`
and `scripts` make what a buyer typed drawable; `typeset` measures and breaks it;
`qr` makes codes; `sheet` is the document. `settings` makes ReportLab safe, and
is imported by `sheet` before anything of ReportLab.
"""
