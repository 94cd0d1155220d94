#!/bin/sh
# Sets the condition Seen in the status of the Deployment web.
set -eu
exec >/dev/null

# naive: condition
others=$(kubectl get deployment web --output=jsonpath='{range .status.conditions[*]}{@},{end}')
# A merge patch replaces the whole list, with what others have added since the read.
kubectl patch deployment web --subresource=status --type=merge \
    --patch="{\"status\":{\"conditions\":[$others{\"type\":\"Seen\",\"status\":\"True\"}]}}"
# end
