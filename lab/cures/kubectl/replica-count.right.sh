#!/bin/sh
# Gives the Deployment web two more replicas than it has.
set -eu
exec >/dev/null

# right: replica-count
for _ in 1 2 3 4 5; do
    replicas=$(kubectl get deployment web --output=jsonpath='{.spec.replicas}')
    # Refused if the count has changed since: then the next one is made from the new count.
    if kubectl scale deployment web --current-replicas="$replicas" --replicas="$((replicas + 2))"; then
        exit 0
    fi
done
exit 1
# end
