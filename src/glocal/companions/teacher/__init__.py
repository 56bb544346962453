"""The teacher companion (TReaderXML): similar training texts and the labels they vote for."""
