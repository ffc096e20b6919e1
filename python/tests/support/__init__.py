"""Helpers that tests share: servers, database clusters, tables, and readers of golden vectors."""
