"""One address in front of many LLM workers: routing by prefix cache and load, as a command and as a library."""
