"""Rank files shipped with the package, gzipped; NOTICE.md says where each comes from. No code."""
