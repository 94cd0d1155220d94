#!/bin/sh
# Applies to the ConfigMap settings, of which another field manager owns the colour.
set -eu
exec >/dev/null

# naive: field-manager
for _ in 1 2 3 4 5; do
    # Another manager owns the colour, and still does at the next attempt.
    if kubectl apply --server-side --field-manager=mine --filename=- <<'END'
apiVersion: v1
kind: ConfigMap
metadata:
  name: settings
data:
  shade: dark
  colour: blue
END
    then
        exit 0
    fi
done
exit 1
# end
