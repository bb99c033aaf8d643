"""Lists and downloads a dataset with huggingface_hub, and prints what it found as JSON.

Usage: hub.py REVISION. HF_ENDPOINT and HF_TOKEN set the server and the token.
"""

import json
import sys

from huggingface_hub import HfApi, get_hf_file_metadata, hf_hub_download, hf_hub_url
from huggingface_hub.utils import HfUri, parse_hf_uri


def checksum(content):
    sum = 0
    for byte in content:
        sum = (sum * 31 + byte) % 1_000_000_007
    return sum


revision = sys.argv[1]
api = HfApi()
files = []
for entry in api.list_repo_tree("o/n", repo_type="dataset", revision=revision, recursive=True):
    if not hasattr(entry, "blob_id"):
        continue
    where = {"repo_id": "o/n", "filename": entry.path, "repo_type": "dataset", "revision": revision}
    metadata = get_hf_file_metadata(hf_hub_url(**where), token=True)
    with open(hf_hub_download(**where), "rb") as file:
        content = file.read()
    assert metadata.size == len(content) and metadata.commit_hash == api.dataset_info("o/n", revision=revision).sha
    files.append(
        {
            "path": entry.path,
            "size": entry.size,
            "hash": entry.lfs.sha256 if entry.lfs else entry.blob_id,
            "etag": metadata.etag,
            "length": len(content),
            "sum": checksum(content),
        }
    )
files.sort(key=lambda file: file["path"].encode())
parsed = parse_hf_uri(HfUri("dataset", "o/n", revision, "x/y.tar").to_uri())
print(json.dumps({"files": files, "parsed": [parsed.id, parsed.revision, parsed.path_in_repo]}))
