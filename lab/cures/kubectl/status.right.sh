#!/bin/sh
# Sets status.collisionCount of the Deployment web to 1.
set -eu
exec >/dev/null

# right: status
kubectl patch deployment web --subresource=status --type=merge \
    --patch='{"status":{"collisionCount":1}}'
# end
