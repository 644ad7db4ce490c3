"""The kernels as their callers see them: nothing here imports Numba.

Each name is the kernel of that name in the module it says, where its documentation stands. A call loads the kernel's
machine code, and compiles it where there is none yet (``native``).
"""

from gantrymq.kernels.native import Kernel

crc32 = Kernel("crc", "crc32")
scan = Kernel("scan", "scan")
read_each = Kernel("scan", "read_each")
walk = Kernel("scan", "walk")
assign_queues = Kernel("queues", "assign_queues")
tags_codes = Kernel("queues", "tags_codes")
encode_units = Kernel("queues", "encode_units")
first_torn = Kernel("torn", "first_torn")
recover_units = Kernel("units", "recover_units")
truncate_units = Kernel("units", "truncate_units")
rising_units = Kernel("units", "rising_units")
first_unit_at_or_after = Kernel("units", "first_unit_at_or_after")
index_hashes = Kernel("index", "index_hashes")
index_put = Kernel("index", "index_put")
index_rewrite = Kernel("index", "index_rewrite")
index_settle = Kernel("index", "index_settle")
index_select = Kernel("index", "index_select")
index_geometry_check = Kernel("index", "index_geometry_check")
index_geometry_score = Kernel("index", "index_geometry_score")
find_record = Kernel("verify", "find_record")
index_chains = Kernel("verify", "index_chains")
index_compare = Kernel("verify", "index_compare")
encode_batch = Kernel("encode", "encode_batch")
measure_wire_batch = Kernel("wire_batch", "measure_wire_batch")
encode_wire_batch = Kernel("wire_batch", "encode_wire_batch")
size_property = Kernel("encode_properties", "size_property")
fill_property = Kernel("encode_properties", "fill_property")
size_map = Kernel("encode_maps", "size_map")
fill_map = Kernel("encode_maps", "fill_map")
gather = Kernel("columns", "gather")
gather_text = Kernel("columns", "gather_text")
find_property = Kernel("columns", "find_property")
properties_map = Kernel("columns", "properties_map")
split_keys = Kernel("columns", "split_keys")
hosts_text = Kernel("hosts", "hosts_text")
message_ids = Kernel("hosts", "message_ids")
