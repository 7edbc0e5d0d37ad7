"""What can be known of the manifests without a cluster.

`python -m deploy.checks` composes the components and tells what is wrong with what they make: fields that no schema
knows, the rules that KubeRay's operator checks when it is too late, Serve options that Ray would drop in silence,
timeouts that do not nest, pods that may do more than they need.
"""
