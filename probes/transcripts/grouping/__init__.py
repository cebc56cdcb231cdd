"""Which requests of a recording belong together: conversations, their names, the order of arrival.

`Conversations` of `conversations` is the way in.
"""
