"""Helpers of the tests: servers, clusters, tables, and readers of golden vectors."""
