-- Which store this is.
return {'ok', id, change, lineage, whole(clock)}
