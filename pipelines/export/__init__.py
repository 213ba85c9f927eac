"""``farspan export``: files for other trainers."""
