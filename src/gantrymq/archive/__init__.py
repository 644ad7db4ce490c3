"""Archives of stores: whole log files with their queues, index and tables, in a directory or an object store.

``archiver`` puts them there, ``copies`` checks and restores them, ``source`` reads the store, ``staging`` makes what
belongs to the whole log files, ``target`` is the place, and ``summary`` the signed account of what is there.
"""
