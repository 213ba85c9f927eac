"""The objective protocol, its data types, and the tools for writing and checking an objective."""
