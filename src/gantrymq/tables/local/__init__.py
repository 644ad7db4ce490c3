"""The engine without a JVM: it writes Parquet files with pyarrow, and commits them with the library of the format."""
