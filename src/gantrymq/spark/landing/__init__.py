"""Landing on Spark: executors read the parts of a step and write the files, the driver commits them.

The driver commits with the code of the local engine, so the state of a table, the proof that a message lands once, and
the check for another lander are the same for both engines, and one engine continues where the other has stopped. Spark
needs no jar of Delta or Iceberg for it.

The obvious way, to give the rows to Spark's own writers of Delta and Iceberg, needs a jar for each release of Spark.
There is none of Delta for PySpark 4.3, and none of Iceberg for PySpark 4.2 and 4.3. Delta's writer also skips a
repeated transaction without an error, so the driver could not tell its own commit from that of another lander.
"""
