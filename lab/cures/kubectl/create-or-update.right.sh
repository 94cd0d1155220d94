#!/bin/sh
# Makes sure that there is a ConfigMap fresh, and that its colour is blue.
set -eu
exec >/dev/null

# right: create-or-update
# Creates it, or changes what is there. Forced, because the colour may belong to who created it.
kubectl apply --server-side --force-conflicts --field-manager=mine --filename=- <<'END'
apiVersion: v1
kind: ConfigMap
metadata:
  name: fresh
data:
  colour: blue
END
# end
