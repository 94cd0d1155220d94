#!/bin/sh
# Sets status.collisionCount of the Deployment web to 1.
set -eu
exec >/dev/null

# naive: status
# Not the subresource: the server drops the change, and kubectl says "patched (no change)".
kubectl patch deployment web --type=merge --patch='{"status":{"collisionCount":1}}'
# end
