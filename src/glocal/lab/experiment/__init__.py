"""The experiment runner: methods, jobs and their results, child processes, measurements."""
