#!/bin/sh
# Sets the condition Seen in the status of the Deployment web.
set -eu
exec >/dev/null

# right: condition
# The field manager owns its own entry of the list, which is found by its type.
kubectl apply --server-side --field-manager=seen-reporter --subresource=status --filename=- <<'END'
apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
status:
  conditions:
  - type: Seen
    status: "True"
END
# end
