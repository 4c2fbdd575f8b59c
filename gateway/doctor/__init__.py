"""What is wrong with a set-up, line by line, each with its mend: looks at the real engines, the machine and the listeners."""
