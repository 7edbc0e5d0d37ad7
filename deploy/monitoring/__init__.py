"""Prometheus, Alertmanager and Grafana: rules, dashboards, and how they are tried."""
