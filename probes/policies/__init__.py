"""What each server makes of a request before its chat template sees it.

`registry` lists the policies. `rewrite` has the steps that servers share, `api` the routes, and `servers` one
module for each server.
"""
