"""What operators need: images, Kubernetes manifests, alerts and dashboards, and the checks of all of them."""
