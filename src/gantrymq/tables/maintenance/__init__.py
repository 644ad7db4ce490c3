"""Maintenance of landed tables: small files become larger ones, old rows and unneeded files go.

==============  ========================================================================================================
options.py      what is wanted, and what was done
rewriting.py    files that are written again, and their commit
small_files.py  which files are compacted
old_rows.py     which files have rows that are too old
upkeep.py       the rewriting of one table
maintainer.py   all steps, for a table and those beside it
==============  ========================================================================================================

Each commit removes files and adds those with the same rows, pinned to the version that was read. It keeps the positions
and changes the ``commit_id`` of the state, so a landing that began before ends with AnotherLanderError. The formats do
the rest (:class:`gantrymq.tables.local.contents.TableContents`).
"""
