"""What a question brings along: files named with @, passages of long files, a map of a repository. Knows no model.

at_names       names after an @: files, folders, globs, the repository, texts from plugins
file_listing   the files that a name means
retrieve       what of the named files goes into the prompt
passages       passages of long files, found by the words of the question
repomap        a map of a repository
workspace_roots  the folders of a session: which files it may read and write
long_files     files that do not fit: whether all of one is asked about, and its parts
"""
