"""The main job (``make run``): stores real flights, kills the writer, recovers, reads with Spark, writes a report.

Begin reading at :mod:`demo.main`, which is the list of the steps.
"""
