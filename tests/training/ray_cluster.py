"""A Ray cluster for tests: a head without cores, and nodes.

python -m tests.training.ray_cluster CORES...

Prints a line of JSON, {"address": ..., "raylets": [process of each node]}, and runs until its
standard input ends. RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER=0 binds it to the loopback interface,
RAY_AUTH_MODE and RAY_AUTH_TOKEN say whether it requires a token."""

import json
import sys

from ray.cluster_utils import Cluster


def main(cores: list[str]) -> None:
    """Run the cluster."""
    head = {"num_cpus": 0, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    nodes = [cluster.add_node(num_cpus=int(number)) for number in cores]
    raylets = [node.all_processes["raylet"][0].process.pid for node in nodes]
    print(json.dumps({"address": cluster.address, "raylets": raylets}), flush=True)
    sys.stdin.read()
    cluster.shutdown()


if __name__ == "__main__":
    main(sys.argv[1:])
