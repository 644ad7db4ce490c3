"""Topics as tables: the plan of a landing, its rows and its account, and the engine without a JVM.

A landing (:mod:`gantrymq.tables.landing`) asks a source for steps, and lets an engine land each step as one commit. The
parts, from the source to the table:

=================  =====================================================================================================
sources/           stores and clusters. :class:`~gantrymq.tables.sources.steps.MessageSource` divides what is new into
                   steps: parts to read, the positions after them, and findings
rows.py            the records of a part as rows, dead rows and rows of the account, in Arrow batches
bodies/            typed columns (:class:`~gantrymq.tables.bodies.body_format.BodyFormat`)
state.py           what a commit keeps: positions, generations, logs, options
engine.py          the protocol of an engine
local/             the local engine, and the formats it writes: Delta, Iceberg, Parquet
=================  =====================================================================================================

The seam for another engine is :class:`~gantrymq.tables.engine.LandingEngine`: ``open`` and ``create`` read and make the
table with its state, ``land`` writes one step. An engine gets everything else:

- An engine that only writes elsewhere is a :class:`~gantrymq.tables.local.engine.LocalEngine` with another
  ``write_parts``, as that on Spark (:mod:`gantrymq.spark.landing`). All of the following then holds.
- ``step.parts`` can be pickled. On any machine ``landed_batches(part, conversion)`` yields the batches of a part, each
  with the kind of table that it belongs to; they are the same at each reading.
- ``state`` is the state after the step. Its ``to_json()`` belongs into the same commit as the rows, and survives the
  clean-up of the format. ``pending`` names files of the side tables (``__dead``, ``__audit``) that are added to them
  after the commit, and again at the next ``open``; so they have each row once, whatever is killed.
- The table must still have the state of ``head`` (``commit_id``) in the commit itself; otherwise AnotherLanderError.
"""
