"""Reading the files of a store whatever is wrong with them: log, queues, index, and a disk that fails."""
