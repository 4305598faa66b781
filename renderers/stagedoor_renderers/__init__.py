"""The renderers that come with Stagedoor: tickets and receipts as PDF.

`ticket_pdf` and `receipt_pdf` are the plugins; `kit` holds everything of
ReportLab and may be used by renderers of others.
"""
