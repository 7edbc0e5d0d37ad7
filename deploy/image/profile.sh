# What login shells find: in one KubeRay calls ray, and python to clean Redis up.
PATH=/opt/venv/bin:$PATH
