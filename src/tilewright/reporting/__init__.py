"""Reports: what a log tells, as a page, as text for pull requests, as a table, as a trace.

In: a log, perhaps the network that it is of, perhaps another log.  Out: files, or a `Report`.
Read next: `write.py`, the door; `collect.py`, what is in a report; `page.py`, how it looks.
"""
