"""The benchmarks of gantrymq: ``race`` runs it beside RocketMQ and Kafka, each script measures one thing alone.

Run them from the checkout: ``python -m benchmarks.race``, ``python benchmarks/kernels.py``.
"""
