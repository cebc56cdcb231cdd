"""The routes of servers: requests of the three APIs in OpenAI chat form."""
