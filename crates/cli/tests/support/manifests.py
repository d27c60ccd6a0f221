"""Whether Kubernetes' manifests, on standard input, have the form that Debian's python3-kubernetes knows: each field is
one of its schemas', of its type, and none that must be there is missing. Exit code 77: the package is not installed."""

import json
import sys

try:
    import yaml
    from kubernetes import client
except ImportError:
    sys.exit(77)


class Answer:
    """As from a server, for the client's own reader of answers."""

    def __init__(self, manifest):
        self.data = json.dumps(manifest)


api = client.ApiClient()
count = 0
for manifest in yaml.safe_load_all(sys.stdin):
    kind = manifest["kind"]
    version = manifest["apiVersion"].split("/")[-1]
    model = version[0].upper() + version[1:] + kind
    read = api.sanitize_for_serialization(api.deserialize(Answer(manifest), model))
    # What the schema does not know is not read.
    if read != manifest:
        sys.exit(f"{kind}: is read as {json.dumps(read)}")
    count += 1
print(count)
