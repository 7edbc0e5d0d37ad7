"""Packages from storage, over HTTP, from S3 or Google Cloud Storage: whole, or not at all. Free of torch."""
