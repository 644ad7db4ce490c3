"""SQL over topics by DuckDB: stores, clusters and landed tables as views.

``engine`` runs a query, ``statement`` reads its syntax tree, ``sources`` makes views of what the user names,
``pushdown`` is what DuckDB scans, ``topic_scan`` reads a topic from queues, of ``store_queue`` or ``cluster_queue``.
"""
