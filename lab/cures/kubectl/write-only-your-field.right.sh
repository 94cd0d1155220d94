#!/bin/sh
# Sets the colour in the ConfigMap settings to blue.
set -eu
exec >/dev/null

# right: write-only-your-field
# What is not in the patch stays as it is.
kubectl patch configmap settings --type=merge --patch='{"data":{"colour":"blue"}}'
# end
