#!/bin/sh
# Gives the Deployment web two more replicas than it has.
set -eu
exec >/dev/null

# naive: replica-count
replicas=$(kubectl get deployment web --output=jsonpath='{.spec.replicas}')
# Sets the count that was made from the old one, whatever it is by now.
kubectl scale deployment web --replicas="$((replicas + 2))"
# end
