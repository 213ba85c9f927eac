"""Rendering: conversion of corpus and mask rows to sources and targets, and back."""
