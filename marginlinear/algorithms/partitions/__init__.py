"""One fit on several threads, or, one day, machines: rows in parts that are worked on at the same time."""
