"""The main job (``make run``): real flights stored, the writer killed, the store recovered, read by Spark, reported.

Begin reading at :mod:`demo.main`, which is the list of the steps.
"""
