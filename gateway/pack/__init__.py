"""A campaign packed so that a stranger can check it without this software: tables, chains, receipts, sums, and the check itself."""
