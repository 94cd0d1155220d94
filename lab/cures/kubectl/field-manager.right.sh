#!/bin/sh
# Applies to the ConfigMap settings, of which another field manager owns the colour.
set -eu
exec >/dev/null

# right: field-manager
# Only the field that is ours. The colour belongs to another manager, and is left out.
kubectl apply --server-side --field-manager=mine --filename=- <<'END'
apiVersion: v1
kind: ConfigMap
metadata:
  name: settings
data:
  shade: dark
END
# end
