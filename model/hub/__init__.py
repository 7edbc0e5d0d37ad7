"""Models by name: what a name means, the download, and a cache of the packages that were made. Free of torch."""
