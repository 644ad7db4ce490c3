"""Commands of ``gantrymq admin`` for parts of RocketMQ's broker that gantrymq's broker lacks.

gantrymq's broker answers their requests with REQUEST_CODE_NOT_SUPPORTED. A part that gantrymq's broker gets moves to
the folder above.
"""
